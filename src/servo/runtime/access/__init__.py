"""Who may do what: tokens, and the secret of a tenant."""
