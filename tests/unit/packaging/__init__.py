"""What a newcomer and an operator get: the package, the set-up, the deployment files, the pages."""
