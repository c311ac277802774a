"""Predictions and the Replicate wire."""
