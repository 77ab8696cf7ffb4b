"""shoestring inside other tools. The rest of the package imports nothing from here, and none of these tools is required.

stepping                        turns a blocking `fit()` with callbacks into a generator of steps
lightning, transformers, keras  a callback for each framework, on top of `stepping`
boosting                        XGBoost, LightGBM and CatBoost in steps, by continuing a model
sklearn                         `BudgetSearchCV`, and estimators that are trained in steps
optuna                          studies to and from Optuna, and a sampler
loggers                         a study in TensorBoard, MLflow or Weights & Biases
"""
