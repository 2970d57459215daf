"""What is answered: frozen structs that server, client and command line share."""
