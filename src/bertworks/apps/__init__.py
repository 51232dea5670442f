"""Applications built on the core. The core does not import them.

probing      what an encoder has learned: attention, layers, nearest words; `explain` shows a forward pass
export       folders for ONNX Runtime, checked against the model they come from
doctor       checks of runs, stores, model folders and labelled data
estimators   scikit-learn's interface
serve        an HTTP server with a web page
demo         a bundled encoder and a few minutes of pre-training, on text of this machine
"""
