"""Extensions that come with Holdfast. The core does not know them: an app declares those that it uses."""
