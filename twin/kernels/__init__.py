"""Compiled code: how it is made, found again and handed its memory; and streams of randomness."""
