"""corral: run an agent, or any command, on a repository nobody trusts yet."""
