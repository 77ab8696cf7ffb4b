"""What makes the weights of the learned belief (`shoestring.models.thrift`); not in the wheel, needs PyTorch.

Read

    sources     what may be trained on, what is for judging only, and the folds
    pack        tables of recorded curves in one small file
    prior       made-up tasks: hyperparameters to learning curves
    record      real trainings of small networks on made-up data, hundreds at a time on an accelerator
    studies     from tasks to half-finished studies: histories, money left, what is to be predicted
    network     features and network in PyTorch; `shoestring.models.thrift` has the same in NumPy
    train       one training: resumable, a few minutes on an accelerator
    export      the weights as the package reads them, with numbers to check its inference against
    calibrate   are forecasts borne out on sources that the weights were not trained on?
    lockstep    thousands of studies at once, in a simplified world; `choose` puts rules and weights side by side in it

`python -m benchmarks thrift` judges the policy itself.
"""
