// What a chat template's run has made and walked so far, in bytes, against what it may.
//
// Steps alone do not bound a run: one step may make a text of 64 MiB, or walk a list that holds another one a thousand
// times. So whoever makes or walks a value charges its bytes here, and before, where they may be many. The limit bounds
// the memory of all values that are alive too.
//
// Failure: TemplateError.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "data/chat/template_value.h"

namespace lockstep {

inline constexpr std::size_t kMostTemplateWork = 256 << 20;

class TemplateMeter {
 public:
  void charge(std::size_t bytes) {
    if (bytes > kMostTemplateWork - done_)
      throw TemplateError(fmt::format("it works on more than {} MiB of values", kMostTemplateWork >> 20));
    done_ += bytes;
  }
  void charge_made(const TemplateValue& value) { charge(value.size().shallow); }

  // The same as of the value.
  TemplateValue::List elements(const TemplateValue& value) {
    TemplateValue::List all = value.elements();
    charge(all.size() * sizeof(TemplateValue) + (value.list() ? 0 : value.size().shallow));
    return all;
  }
  std::string text(const TemplateValue& value) {
    charge(value.get<std::string>() ? value.weight() / 4 : value.weight());  // a copy of a text is gone soon
    return value.text();
  }
  bool equal(const TemplateValue& a, const TemplateValue& b) {
    charge(std::min(a.weight(), b.weight()) / 4);
    return lockstep::equal(a, b);
  }
  bool contains(const TemplateValue& container, const TemplateValue& value) {
    charge(container.size().shallow / 4);
    if (const auto* list = container.list()) {
      const std::size_t whole = container.weight(), each = value.weight(), count = list->size();
      charge((count > 0 && each > whole / count ? whole : count * each) / 4);  // the product may be too large a number
    }
    return lockstep::contains(container, value);
  }

 private:
  std::size_t done_ = 0;
};

}  // namespace lockstep
