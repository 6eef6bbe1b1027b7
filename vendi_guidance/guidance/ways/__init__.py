"""The ways to guide a call, a module each; none knows another. `guidance.choose` takes one."""
