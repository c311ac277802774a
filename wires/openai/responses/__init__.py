"""`/v1/responses`: what was asked (`request`, `items`), what is answered (`output`, `encoder`), and the routes."""
