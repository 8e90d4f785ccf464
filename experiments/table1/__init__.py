"""Table 1 of the paper: test log-likelihoods on 20 binary data sets.

    python -m experiments.table1 --quick
    python -m experiments.table1 --datasets nltcs,plants --device cuda

Structure and learning parameters are chosen on the validation rows alone; the test rows are read
once for each final model. The files: ``published`` (others' results), ``settings`` (what is tried),
``train`` (one model), ``selection`` (the search), ``entry`` (search and final models of one data
set), ``pool`` (several at a time), ``store`` (files and resuming), ``significance`` and ``report``
(the table).
"""
