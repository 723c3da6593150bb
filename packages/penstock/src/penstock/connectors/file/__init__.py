"""`file`: a file as source and destination, with the meaning that Conduit's connector of this name has."""
