#include "spec/run/data_choices.h"

#include <algorithm>
#include <string_view>

namespace lockstep {

namespace {

constexpr std::string_view kSources[] = {"text", "tokens", "example", "synthetic", "source", "weigh_by"};
constexpr std::string_view kOfSynthetic[] = {"vocabulary", "order", "branching", "seed"};

bool is_chosen(const TomlDocument& document, std::string_view source) {
  if (source == "synthetic" &&
      std::ranges::any_of(kOfSynthetic, [&](auto key) { return document.set("data.synthetic", key); }))
    return true;
  return document.set("data", source) &&
         (source != "example" || document.top().table("data").shown("example") == "true");
}

}  // namespace

void unmake_data_choices(TomlDocument& document) {
  for (const std::string_view source : {"text", "tokens", "example", "synthetic"}) {
    if (!is_chosen(document, source)) continue;
    for (const std::string_view other : kSources)
      if (other != source) document.drop("data", other);
    if (source != "text") document.drop("data", "tokenizer");
    if (source != "tokens") document.drop("data", "token_type");
  }
}

}  // namespace lockstep
