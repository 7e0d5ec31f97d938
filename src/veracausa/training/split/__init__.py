"""The parties of split training: `active` leads, `passive` answers, `program` starts either of them anywhere."""
