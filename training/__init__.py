"""Training of the learned surrogate (`shoestring.models.thrift`). It is not in the wheel and needs PyTorch.

Read in this order:

    sources     sources of curves for training, sources for judging only, and the folds
    pack        tables of recorded curves in one small file
    prior       synthetic tasks: learning curves from hyperparameters
    record      real trainings of small networks on synthetic data, hundreds at a time on an accelerator
    studies     half-finished studies made from tasks: histories, remaining budgets, and the values to predict
    network     features and network in PyTorch; `shoestring.models.thrift` has the same in NumPy
    train       one training: resumable, a few minutes on an accelerator
    export      the weights as the package reads them, and results to test its inference with
    calibrate   calibration of predictions on sources that the weights were not trained on
    lockstep    thousands of studies at once, in a simplified simulation; `choose` compares rules and weights in it

`python -m benchmarks thrift` judges the policy itself.
"""
