"""Servers: the Wyoming protocol, HTTP and WebSocket, with one model for all clients."""
