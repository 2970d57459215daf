"""How things look: from data to text with colours, for whatever draws it. Nothing here asks or writes anything."""
