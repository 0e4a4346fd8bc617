// A tensor on the host in double, dense: what references read and write, whatever the type and strides of the real
// operand.
//
// A reference also says, for each output element, how large the terms were that it was summed from (`magnitude`) and
// how many a sum has (`terms`). Rounding errors of any honest order of the same sum are bounded by these, so a
// comparison needs no tolerance tuned by hand: see `allowed_error`.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace lockstep::tests {

struct HostTensor {
  std::string name;
  Shape shape;
  DType dtype = DType::f64;
  std::vector<double> value;
  std::vector<double> magnitude;  // outputs only; empty stands for |value|
  double terms = 1;
  // Outputs only: the size of the terms that a kernel may round to this tensor's type before it adds them up, counted
  // once for each such rounding. Empty: none may.
  std::vector<double> narrowed;

  HostTensor() = default;
  HostTensor(std::string name, const Shape& shape, DType dtype)
      : name(std::move(name)), shape(shape), dtype(dtype), value(shape.elements()) {}

  std::int64_t dim(int i) const { return shape[i]; }
  std::int64_t elements() const { return static_cast<std::int64_t>(value.size()); }
  double operator[](std::int64_t i) const { return value[i]; }

  // Writes one output element and the size of what it was made from.
  void set(std::int64_t i, double v, double size) {
    if (magnitude.empty()) magnitude.assign(value.size(), 0.0);
    value[i] = v;
    magnitude[i] = size;
  }
  void set_narrowed(std::int64_t i, double size) {
    if (narrowed.empty()) narrowed.assign(value.size(), 0.0);
    narrowed[i] = size;
  }

  HostTensor slice(int dim, std::int64_t begin, std::int64_t count) const;
  void paste(int dim, std::int64_t begin, const HostTensor& part);  // values and sizes
};

// A sum with the size of its terms.
struct Sum {
  double value = 0;
  double size = 0;
  void add(double term) { add(term, std::abs(term)); }
  void add(double term, double term_size) {
    value += term;
    size += term_size;
  }
};

double round_to(DType dtype, double value);
void round_all(HostTensor& t);  // every value as the tensor's type would hold it

// One element as its type keeps it; the value must be one that the type has, or is rounded to nearest even.
void store_element(std::byte* at, DType dtype, double value);
double load_element(const std::byte* at, DType dtype);

// Half the distance from 1 to the next number: what one rounding may cost, relatively.
double unit_roundoff(DType dtype);

// What may part a kernel's element from the reference's: one rounding to its type, and the roundings of a sum of
// `terms` terms of this magnitude in the accumulator (an error grows like the root of the count; 32 covers polynomial
// exponentials and the few operations around a sum). Where the device's kernel may narrow terms, also the roundings of
// those to the type: one unit each, of any sign, so their sizes add up.
double allowed_error(const HostTensor& want, std::int64_t i, DType accumulator, bool narrow_terms = false);

// "" when all elements are within what is allowed, or a sentence about the worst.
std::string difference(const HostTensor& got, const HostTensor& want, DType accumulator, bool narrow_terms = false);

}  // namespace lockstep::tests
