"""`chaos`: a source and a destination that do what their settings say, also what no connector should. For tests of hosts."""
