"""Schedules as instruction lists, and their exact times over unequal stages."""
