"""Single faults in a leaf-spine fabric, found by the manager's own code or not."""
