"""One step of a training, looked through operator by operator for work that is done for nothing; once, and never again.

``look`` says which step, and puts ``dispatch_mode`` onto torch's stack while its forward, loss and backward run. That
shows each operator to all of ``every_watcher``; what a watcher is says ``watcher``.

``step_totals`` adds up what all operators take. ``zero_products`` finds matrix products with an operand of mostly zeros
(counted by ``operand_zeros``, weighed by ``flop_formulas``), and has ``gradient_rows`` find rows that get no gradient.
``operator_graph`` keeps who reads what, and for the ``graph_watcher`` of each kind: ``broadcast_blow_ups``,
``zero_arithmetic``, ``smoothed_labels``, ``zero_factors``, ``composed_attention`` (and ``fused_attention``, what one
kernel would take), ``weight_penalties``, ``diagonal_matrices``, ``drawn_masks`` and ``product_orders``, of which
``contractions`` works out the best order.
``earlier_graph`` tells backward through what earlier steps computed.
``prefixes_again`` compares calls without gradients, ``recurrent_again`` those of recurrent layers with them.
``dataflow`` tells what is computed again, never used, or made of constants; it knows operators by their
``operator_traits``, memory by ``dataflow_storages``, reads that are no operators by ``unseen_reads`` and products of
parameters by ``dense_products``, writes it down in ``dataflow_columns``, and has ``dataflow_told`` say what is
needless. ``operator_lines`` names the line that asks for an operator.
"""
