// The three products of a projection in FP8, against the definition in plain loops: quantized by trying scales and
// codes, multiplied in double.
#include "model/fp8_products.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/linear.h"
#include "support/tensor_box.h"
#include "tensor/cpu/stream.h"

namespace lockstep::tests {
namespace {

using Matrix = std::vector<double>;

// The nearest numbers of a type with n bits of mantissa, after division by the smallest power of two that brings
// the largest into range; multiplied again.
Matrix quantized(const Matrix& x, bool gradient) {
  const double top = gradient ? 57344 : 448, bits = gradient ? 2 : 3, least = gradient ? -14 : -6;
  double most = 0;
  for (const double v : x) most = std::max(most, std::abs(v));
  double scale = 1;
  while (most > 0 && most / scale > top) scale *= 2;
  while (most > 0 && most / (scale / 2) <= top) scale /= 2;
  Matrix q = x;
  for (double& v : q) {
    if (v == 0) continue;
    const double step = std::exp2(std::max(std::floor(std::log2(std::abs(v / scale))), least) - bits) * scale;
    v = std::nearbyint(v / step) * step;
  }
  return q;
}

// Sum over k of a(i, k) · b(k, j), each given by what it is of.
template <class A, class B>
Matrix product(std::int64_t rows, std::int64_t columns, std::int64_t inner, A&& a, B&& b) {
  Matrix c(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t k = 0; k < inner; ++k) c[static_cast<std::size_t>(i * columns + j)] += a(i, k) * b(k, j);
  return c;
}

double signal_to_noise(const Matrix& got, const Matrix& want) {
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    signal += want[i] * want[i];
    noise += (got[i] - want[i]) * (got[i] - want[i]);
  }
  return 10 * std::log10(signal / noise);
}

struct Given {
  std::int64_t tokens, in, out;
  bool in_out = false, bias = false, addend = false, fp8 = true;
  double x_scale = 1, dy_scale = 1e-4;
};

// A projection by itself: its parameters, its slots, and what goes in.
class Projection {
 public:
  explicit Projection(const Given& given)
      : g(given),
        build_{.spec = spec_, .B = 1, .T = g.tokens, .dtype = DType::bf16, .slots = slots_, .how = {.fp8 = g.fp8}},
        linear_(
            layout_, build_, {1, Half::first, "projection"},
            {.in = Part::whole(g.in), .in_out = g.in_out, .pieces = {{"one", {Part::whole(g.out)}}}, .bias = g.bias}),
        x(box.make(DType::bf16, {g.tokens, g.in}, normal(g.x_scale), 1)),
        dy(box.make(DType::bf16, {g.tokens, g.out}, normal(g.dy_scale), 2)),
        weight(box.make(DType::bf16, g.in_out ? Shape{g.in, g.out} : Shape{g.out, g.in}, normal(0.05), 3)),
        bias(box.make(DType::bf16, {g.out}, normal(), 4)),
        addend(box.make(DType::bf16, {g.tokens, g.out}, normal(), 5)),
        y(box.make(DType::bf16, {g.tokens, g.out})),
        dx(box.make(DType::bf16, {g.tokens, g.in})),
        dweight(box.make(DType::f32, weight.shape())),
        dbias(box.make(DType::f32, {g.out})) {
    const StepShape shape{.units = 3, .micro = 1};
    tensors_ = {{weight, bias}, {dweight, dbias}};
    activations_ = StepActivations(slots_, serial_step(shape), shape, *memory_);
  }

  Call call(bool accumulate = false) { return {tensors_, activations_.of(0), batch_, box.stream(), accumulate}; }
  void run() {
    linear_.forward(y, x, call(), {.addend = g.addend ? ConstTensor(addend) : ConstTensor{}});
    linear_.backward_input(dx, dy, call());
    linear_.backward_weight(dy, x, call());
  }
  const Linear& linear() const { return linear_; }

  // By the definition, or with all operands as they are.
  struct Results {
    Matrix y, dx, dweight;
  };
  Results expected(bool quantize) const {
    const auto as = [&](const Tensor& t, bool gradient) {
      return quantize ? quantized(TensorBox::read(t), gradient) : TensorBox::read(t);
    };
    const Matrix qx = as(x, false), qw = as(weight, false), qdy = as(dy, true);
    const auto at = [](const Matrix& m, std::int64_t row, std::int64_t columns, std::int64_t column) {
      return m[static_cast<std::size_t>(row * columns + column)];
    };
    const auto w = [&](std::int64_t o, std::int64_t i) { return g.in_out ? at(qw, i, g.out, o) : at(qw, o, g.in, i); };
    Results r;
    r.y = product(
        g.tokens, g.out, g.in, [&](auto n, auto i) { return at(qx, n, g.in, i); },
        [&](auto i, auto o) { return w(o, i); });
    for (std::int64_t n = 0; n < g.tokens; ++n)
      for (std::int64_t o = 0; o < g.out; ++o) {
        double& v = r.y[static_cast<std::size_t>(n * g.out + o)];
        if (g.bias) v += TensorBox::read(bias, o);
        if (g.addend) v += TensorBox::read(addend, n * g.out + o);
      }
    r.dx = product(
        g.tokens, g.in, g.out, [&](auto n, auto o) { return at(qdy, n, g.out, o); },
        [&](auto o, auto i) { return w(o, i); });
    r.dweight = g.in_out ? product(
                               g.in, g.out, g.tokens, [&](auto i, auto n) { return at(qx, n, g.in, i); },
                               [&](auto n, auto o) { return at(qdy, n, g.out, o); })
                         : product(
                               g.out, g.in, g.tokens, [&](auto o, auto n) { return at(qdy, n, g.out, o); },
                               [&](auto n, auto i) { return at(qx, n, g.in, i); });
    return r;
  }

 private:
  ModelSpec spec_;
  Slots slots_;
  Ledger ledger_;
  std::unique_ptr<Memory> memory_ = make_memory(Device::cpu, ledger_);
  UnitLayout layout_{"projection"};

 public:
  const Given g;
  TensorBox box;

 private:
  Build build_;
  Linear linear_;

 public:
  const Tensor x, dy, weight, bias, addend, y, dx, dweight, dbias;

 private:
  UnitTensors tensors_;
  StepActivations activations_;
  Batch batch_;
};

// Relative to the largest: one rounding of the result, and of fp32 sums a little.
void expect_near(const Matrix& got, const Matrix& want, double tolerance, const char* what) {
  double most = 0;
  for (const double v : want) most = std::max(most, std::abs(v));
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance * (std::abs(want[i]) + 1e-3 * most)) << what << " " << i;
}

const Given kGiven[] = {
    {.tokens = 48, .in = 64, .out = 80},
    {.tokens = 16, .in = 304, .out = 16, .addend = true},
    {.tokens = 32, .in = 48, .out = 160, .in_out = true, .bias = true},
    {.tokens = 16, .in = 32, .out = 16, .bias = true, .addend = true, .x_scale = 1e4, .dy_scale = 1e-9}};

TEST(Fp8Products, AreThoseOfTheDefinition) {
  for (const Given& given : kGiven) {
    Projection one(given);
    one.run();
    const auto want = one.expected(true);
    expect_near(TensorBox::read(one.y), want.y, 0x1p-8, "y");
    expect_near(TensorBox::read(one.dx), want.dx, 0x1p-8, "dx");
    expect_near(TensorBox::read(one.dweight), want.dweight, 0x1p-18, "dweight");
  }
}

TEST(Fp8Products, HaveASignalToNoiseRatioOfAtLeast20Decibels) {
  for (const Given& given :
       {Given{.tokens = 128, .in = 256, .out = 192}, Given{.tokens = 256, .in = 128, .out = 128}}) {
    Projection one(given);
    one.run();
    const auto exact = one.expected(false);
    EXPECT_GE(signal_to_noise(TensorBox::read(one.y), exact.y), 20);
    EXPECT_GE(signal_to_noise(TensorBox::read(one.dx), exact.dx), 20);
    EXPECT_GE(signal_to_noise(TensorBox::read(one.dweight), exact.dweight), 20);
    // And they are not those of bf16: something was rounded.
    EXPECT_LE(signal_to_noise(TensorBox::read(one.y), exact.y), 45);
  }
}

TEST(Fp8Products, AddToAWeightsGradientInFp32) {
  Projection one({.tokens = 32, .in = 32, .out = 48});
  one.run();
  const Matrix first = TensorBox::read(one.dweight);
  one.linear().backward_weight(one.dy, one.x, one.call(true));
  const Matrix both = TensorBox::read(one.dweight);
  for (std::size_t i = 0; i < both.size(); ++i) EXPECT_EQ(both[i], 2 * first[i]);
}

TEST(Fp8Products, OfExtentsThatAreNoMultipleOf16AreInBf16ToTheBit) {
  for (const Given& odd : {Given{.tokens = 47, .in = 64, .out = 80}, Given{.tokens = 48, .in = 63, .out = 80},
                           Given{.tokens = 48, .in = 64, .out = 81}}) {
    Given in_bf16 = odd;
    in_bf16.fp8 = false;
    Projection asked(odd), plain(in_bf16);
    asked.run();
    plain.run();
    EXPECT_EQ(TensorBox::bytes(asked.y), TensorBox::bytes(plain.y));
    EXPECT_EQ(TensorBox::bytes(asked.dx), TensorBox::bytes(plain.dx));
    EXPECT_EQ(TensorBox::bytes(asked.dweight), TensorBox::bytes(plain.dweight));
  }
}

TEST(Fp8Products, OfZerosAreZeroAndOfABadValueNaN) {
  Projection zeros({.tokens = 16, .in = 16, .out = 16, .x_scale = 0});
  zeros.run();
  for (const double v : TensorBox::read(zeros.y)) EXPECT_EQ(v, 0);
  for (const double v : TensorBox::read(zeros.dweight)) EXPECT_EQ(v, 0);
  for (const double bad : {double{INFINITY}, double{NAN}}) {
    Projection one({.tokens = 16, .in = 16, .out = 16});
    TensorBox::write(one.x, 3, bad);
    one.run();
    for (const double v : TensorBox::read(one.y)) EXPECT_TRUE(std::isnan(v));
    for (const double v : TensorBox::read(one.dweight)) EXPECT_TRUE(std::isnan(v));
    for (const double v : TensorBox::read(one.dx)) EXPECT_TRUE(std::isfinite(v));
  }
}

}  // namespace
}  // namespace lockstep::tests
