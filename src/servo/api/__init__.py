"""The HTTP server: thin routes over the services that the command line calls too.

Nothing is imported with the package: only who serves pays for Litestar and uvicorn. `servo.api.serving` runs the
server in a thread, `servo.api.app` puts the routes together.
"""
