"""Pure decisions: facts and a command in, a plan or an error out."""
