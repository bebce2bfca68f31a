"""Weighted least squares of node values from differences along edges.

The normal equations are a graph Laplacian, solved by conjugate gradients with a diagonal
preconditioner; probe graphs are random and of even degree, so that a few dozen steps do. Huygens'
loop correction is the same projection: fitted edge values are B pinv(B) y for unit weights.
"""

import numpy as np
import numpy.typing as npt
from scipy import sparse

from cwdp.shared.clocksync._types import F64

_DENSE_UP_TO = 256
_RELATIVE = 1e-12
_MOST_STEPS = 4000

Nodes = npt.NDArray[np.integer]


class Laplacian:
    """The structure of a graph, reused while only weights change.

    Args:
        n_nodes: nodes 0 to n_nodes - 1.
        a: integers [edges], one end of each edge.
        b: integers [edges], the other end.
    """

    def __init__(self, n_nodes: int, a: Nodes, b: Nodes) -> None:
        self.n_nodes = n_nodes
        self.a, self.b = a, b
        self._ends = a.astype(np.int32), b.astype(np.int32)

    def solve(self, y: F64, weight: F64, start: F64 | None = None, tolerance_ns: float = 1e-3) -> F64:
        """Minimise the sum of weight * (x[a] - x[b] - y)**2.

        Args:
            y: float64 [edges], wanted differences, ns.
            weight: float64 [edges], >= 0; 0 takes an edge out.
            start: float64 [nodes], a first guess.
            tolerance_ns: stop when steps of every node fall below about this.

        Returns:
            x float64 [nodes], up to one constant per component; nodes without edges keep their start.
        """
        half = self._half_adjacency(weight)
        degree = self.node_sum(weight)
        inverse = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
        x = np.zeros(self.n_nodes) if start is None else start.copy()
        flow = weight * (y - self.differences(x))
        residual = self._node_total(self.a, flow) - self._node_total(self.b, flow)
        preconditioned = inverse * residual
        direction = preconditioned.copy()
        product = float(residual @ preconditioned)
        tolerance = max(tolerance_ns, _RELATIVE * float(np.max(np.abs(preconditioned), initial=0.0)))
        for _ in range(min(4 * self.n_nodes + 20, _MOST_STEPS)):
            if product <= 0 or np.max(np.abs(preconditioned)) < tolerance:
                break
            image = degree * direction
            image -= half @ direction
            image -= half.T @ direction
            step = product / float(direction @ image)
            x += step * direction
            residual -= step * image
            preconditioned = inverse * residual
            previous, product = product, float(residual @ preconditioned)
            direction *= product / previous
            direction += preconditioned
        return x

    def differences(self, x: F64) -> F64:
        """x[a] - x[b] of every edge."""
        return np.asarray(x[self.a] - x[self.b])

    def node_sum(self, per_edge: F64) -> F64:
        """Sum of an edge value over the edges of each node: float64 [nodes]."""
        return self._node_total(self.a, per_edge) + self._node_total(self.b, per_edge)

    def variance(self, weight: F64) -> F64:
        """Variance of each node against the mean of its component, for weights 1 / sigma**2.

        A node that is known far worse than the median node counts for less in the mean: it makes the others no less
        certain. Exact for small graphs; else two terms of the Neumann series of the inverse, which are enough on the
        expanders that probe graphs are.

        Returns:
            float64 [nodes], inf for nodes without weight.
        """
        degree = self.node_sum(weight)
        alone = degree <= 0
        if self.n_nodes <= _DENSE_UP_TO:
            return np.asarray(np.where(alone, np.inf, np.maximum(self._exact_variance(weight, degree), 0.0)))
        inverse = np.divide(1.0, degree, out=np.zeros_like(degree), where=~alone)
        square = weight**2
        second = self._node_total(self.a, square * inverse[self.b])
        second += self._node_total(self.b, square * inverse[self.a])
        second *= inverse**2
        return np.where(alone, np.inf, inverse + second)

    def _exact_variance(self, weight: F64, degree: F64) -> F64:
        half = self._half_adjacency(weight).toarray()
        _, component = sparse.csgraph.connected_components(half > 0, directed=False)
        together = (component[:, None] == component) & (degree > 0)
        covariance = _covariance(half + half.T, degree, together)
        variance = np.maximum(np.diag(covariance), 0.0)
        share = 1 / (np.median(variance[degree > 0], keepdims=True) + variance)
        mean_of = np.where(together, share, 0.0)
        mean_of /= np.maximum(mean_of.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        across = mean_of @ covariance
        return np.asarray(variance - 2 * np.diag(across) + (across * mean_of).sum(axis=1))

    def _node_total(self, end: Nodes, per_edge: F64) -> F64:
        return np.asarray(np.bincount(end, per_edge, self.n_nodes), np.float64)

    def _half_adjacency(self, weight: F64) -> "sparse.coo_array":
        """Weights at [a, b]; adding the transpose gives the whole. COO needs no assembly at all."""
        return sparse.coo_array((weight, self._ends), (self.n_nodes, self.n_nodes))


def _covariance(adjacency: F64, degree: F64, together: npt.NDArray[np.bool_]) -> F64:
    """Of all nodes, each counted by its degree in the mean that they are held against: float64 [nodes, nodes].

    The normalised Laplacian is inverted, which is as accurate where weights differ by many powers of ten. The constant
    of each component, which no edge measures, is known and taken out by itself: told from rounding by its size alone,
    as a pseudo-inverse does it, it comes back as a variance of 1e15 of either sign once in thousands of graphs.

    Args:
        adjacency: float64 [nodes, nodes], weights.
        degree: float64 [nodes], sums of weights.
        together: bool [nodes, nodes], whether the column's node has edges and is of the row's component.
    """
    root = np.sqrt(degree)
    scale = np.divide(1.0, root, out=np.zeros_like(degree), where=degree > 0)
    total = np.where(together, degree, 0.0).sum(axis=1)
    constant = np.divide(root[:, None] * root, total, out=np.zeros_like(adjacency), where=together)
    normalised = np.diag(np.sign(degree)) - scale[:, None] * adjacency * scale
    values, vectors = np.linalg.eigh(normalised + constant)
    least = len(degree) * np.finfo(np.float64).eps
    inverse = (vectors / np.maximum(values, least)) @ vectors.T - constant
    return np.asarray(scale[:, None] * inverse * scale)
