"""The parts of the learner's pipeline: a module for each notebook that asks for some, with its `PARTS`."""
