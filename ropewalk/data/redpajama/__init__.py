"""tensorflow-datasets builder of RedPajama (Together, 2023), without TensorFlow."""
