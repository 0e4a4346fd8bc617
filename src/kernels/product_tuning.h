// Which of a library's algorithms computes which form of a product, where a library does it (cuBLASLt, on a GPU).
//
// A form is everything of a product that the choice may depend on: sizes, transposes, strides, types, the operands'
// alignment and the library's workspace; never an address. A choice is the library's own name of an algorithm. Both are
// text, valid for the same GPU and version of the library only. Given choices are used as they are; one that makes no
// sense there is an EnvironmentError. Any other form uses the library's first proposal, or, with `autotune`, the
// fastest of several, timed when the form is first met. A form keeps its algorithm as long as the stream lives. Every
// algorithm that may be chosen gives the same bits for the same call.
//
// On cpu and meta there is nothing to choose: what is given is ignored, and nothing comes back.
#pragma once
#include <map>
#include <string>

#include "tensor/stream.h"

namespace lockstep {

using ProductChoices = std::map<std::string, std::string>;  // form -> algorithm

// Where choices hold. Both are empty where nothing is chosen.
struct ProductSite {
  std::string gpu;      // as its driver calls it
  std::string library;  // name and version
  bool operator==(const ProductSite&) const = default;
};
ProductSite product_site(Stream& stream);

// Before the stream's first product.
void set_product_choices(const ProductChoices& given, bool autotune, Stream& stream);
// Those given, and those that were timed since.
ProductChoices product_choices(Stream& stream);
// Whether products were timed since this was last asked.
bool new_product_choices(Stream& stream);

namespace cuda {
ProductSite product_site(lockstep::Stream& stream);
void set_product_choices(const ProductChoices& given, bool autotune, lockstep::Stream& stream);
ProductChoices product_choices(lockstep::Stream& stream);
bool new_product_choices(lockstep::Stream& stream);
}  // namespace cuda

}  // namespace lockstep
