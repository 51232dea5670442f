"""Kernels as autograd functions, one by one, so that a test can compare their grads with torch's."""

import torch


class AddNorm(torch.autograd.Function):
    """LayerNorm of x + dropout(update), (T, D), in float32 and bfloat16."""

    @staticmethod
    def forward(ctx, kernels, rows, dropout, x, update, gain, bias):
        out, out16, *ctx.kept = kernels.add_norm(x, update, rows, dropout, gain, bias, 1e-12)
        ctx.rest = kernels, gain, dropout
        ctx.set_materialize_grads(False)
        return out, out16

    @staticmethod
    def backward(ctx, *grads):
        kernels, *rest = ctx.rest
        return None, None, None, *kernels.add_norm_backward(grads, ctx.kept, *rest)


class Attention(torch.autograd.Function):
    """Queries, keys and values to the context (R, D)."""

    @staticmethod
    def forward(ctx, kernels, rows, returned, shape, dropout, *parts):
        context, *kept = kernels.attention(parts, rows, returned, shape, dropout)
        ctx.given = kernels, parts, kept, rows, returned, shape, dropout
        return context

    @staticmethod
    def backward(ctx, grad):
        kernels, *rest = ctx.given
        return *[None] * 5, *kernels.attention_backward(grad, *rest)


class Linear(torch.autograd.Function):
    """Linear layers side by side, (T, K) to (T, N). parameters: all weights, then all biases."""

    @staticmethod
    def forward(ctx, kernels, x, *parameters):
        half = len(parameters) // 2
        y, kept = kernels.linear(x, parameters[:half], parameters[half:])
        ctx.given = kernels, x, kept, [len(weight) for weight in parameters[:half]]
        return y

    @staticmethod
    def backward(ctx, dy):
        kernels, x, kept, widths = ctx.given
        grads = (grad.split(widths) for grad in kernels.grad_weights(dy, x))
        return None, kernels.grad_input(dy, kept), *(part for parts in grads for part in parts)


class Gelu(torch.autograd.Function):
    """(T, D), exact or in the tanh form; keeps the sum over rows of its grad in `sums`."""

    @staticmethod
    def forward(ctx, kernels, x, tanh, sums):
        ctx.given = kernels, x, tanh, sums
        return kernels.gelu(x, tanh)

    @staticmethod
    def backward(ctx, grad):
        kernels, x, tanh, sums = ctx.given
        grad = grad.clone()  # it becomes that of x
        sums.append(kernels.gelu_backward(x, grad, tanh))
        return None, grad, None, None
