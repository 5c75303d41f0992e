"""Stages as pools of unequal peers that share micro-batches by speed."""
