"""RedPajama (Together, 2023) as published, through tensorflow-datasets, without TensorFlow."""
