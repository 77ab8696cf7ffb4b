"""A search with scikit-learn's conventions that ends when its budget is spent."""

from __future__ import annotations

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from shoestring import Float
from shoestring.integrations.sklearn import BudgetSearchCV

X, Y = load_digits(return_X_y=True)
X_TRAIN, X_TEST, Y_TRAIN, Y_TEST = train_test_split(X / 16, Y, random_state=0)

if __name__ == "__main__":
    # A step is a pass over the rows: most configurations are paused after a few passes.
    linear = BudgetSearchCV(
        SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.1),
        {"eta0": Float(1e-4, 10.0, log=True), "alpha": Float(1e-7, 1e-1, log=True)},
        budget="3s",
        random_state=0,
    ).fit(X_TRAIN, Y_TRAIN)
    print(f"linear  {linear.score(X_TEST, Y_TEST):.3f} after {linear.best_steps_} passes, {linear.best_params_}")

    # An SVC cannot be trained in steps, so a step is a fold: a poor configuration is paused after the first.
    pipeline = make_pipeline(StandardScaler(), SVC())
    space = {"svc__C": Float(0.01, 100.0, log=True), "svc__gamma": Float(1e-4, 1.0, log=True)}
    kernel = BudgetSearchCV(pipeline, space, budget="3s", random_state=0).fit(X_TRAIN, Y_TRAIN)
    print(f"kernel  {kernel.score(X_TEST, Y_TEST):.3f} of {len(kernel.cv_results_['params'])} configurations")
