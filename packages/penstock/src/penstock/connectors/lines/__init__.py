"""`lines`: follows one file as it grows, line by line, over rotation and truncation. Resumes exactly by position."""
