"""A minute of as many short tasks as the machine can run: what is dropped, what is slower?"""
