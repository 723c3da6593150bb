"""`stdin`: lines of standard input as records. They can't be read again: what is not acknowledged when it ends is lost."""
