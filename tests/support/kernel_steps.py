"""Kernels as autograd functions, one by one, so that a test can compare their slopes with torch's."""

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
    def backward(ctx, *slopes):
        kernels, *rest = ctx.rest
        return None, None, None, *kernels.add_norm_backward(slopes, ctx.kept, *rest)


class Attention(torch.autograd.Function):
    """Queries, keys and values to the context (R, D)."""

    @staticmethod
    def forward(ctx, kernels, rows, returned, shape, dropout, *parts):
        context, *kept = kernels.attention(parts, rows, returned, shape, dropout)
        ctx.given = kernels, parts, kept, rows, returned, shape, dropout
        return context

    @staticmethod
    def backward(ctx, slope):
        kernels, *rest = ctx.given
        return *[None] * 5, *kernels.attention_backward(slope, *rest)


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
        slopes = (slope.split(widths) for slope in kernels.weight_slopes(dy, x))
        return None, kernels.input_slope(dy, kept), *(part for parts in slopes for part in parts)


class Gelu(torch.autograd.Function):
    """(T, D), exact or in the tanh form; keeps the sum over rows of its slope in `sums`."""

    @staticmethod
    def forward(ctx, kernels, x, tanh, sums):
        ctx.given = kernels, x, tanh, sums
        return kernels.gelu(x, tanh)

    @staticmethod
    def backward(ctx, slope):
        kernels, x, tanh, sums = ctx.given
        slope = slope.clone()  # it becomes that of x
        sums.append(kernels.gelu_backward(x, slope, tanh))
        return None, slope, None, None
