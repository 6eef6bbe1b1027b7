"""Generation that resumes."""
