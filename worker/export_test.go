package worker

import "net/http"

// Routes are the worker's own HTTP routes.
func (w *Worker) Routes() http.Handler { return w.routes() }
