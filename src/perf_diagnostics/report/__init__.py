"""What a report says, and how it is drawn.

``build`` makes the one value of ``model`` that every format is drawn from: out of ``arms`` (the numbers), ``answers``
and ``changes`` (the words), ``charts`` and ``tables``. ``formats`` writes it, with ``drawing`` and ``slides``;
``comparison`` tells two runs apart in the same way.
"""
