"""Private set intersection: the parties find the rows that they have in common without showing their ids.

`AlignmentProgram` is one party's program over a link. `align_embedded` runs all parties on one machine. What a party
brings and takes is limited by `OwnOptions`, because whoever brings an id learns whether it is common.
"""
