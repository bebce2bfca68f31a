"""Single faults in fabrics of two or three tiers, found by the manager's own code or not."""
