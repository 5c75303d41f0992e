"""The search's formulations in OR-Tools CP-SAT: one module per constraint family, all with the signature (model, variables, tables) -> None."""
