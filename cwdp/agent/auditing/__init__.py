"""Audits of this host: facts, walks and what it reaches, as the manager orders."""
