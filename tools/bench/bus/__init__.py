"""The bus as a cluster: how soon somebody leads again."""
