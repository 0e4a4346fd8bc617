#include "data/tokenizer/post_processor.h"

#include <algorithm>

#include "base/error.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestTemplate = 1024;

}  // namespace

PostProcessor::PostProcessor(const TokenizerNode& document) {
  if (document.has("post_processor")) read(document.at("post_processor"));
}

void PostProcessor::read(const TokenizerNode& node) {
  const std::string type = node.type();
  if (type == "Sequence") {
    node.only({"processors"});
    for (const TokenizerNode& item : node.items("processors")) read(item);
  } else if (type == "ByteLevel") {
    node.only({"add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "TemplateProcessing") {
    if (template_) node.unsupported("a second template");
    read_template(node);
  } else {
    node.unsupported("post-processor " + quote_text(type));
  }
}

void PostProcessor::read_template(const TokenizerNode& node) {
  node.only({"single", "pair", "special_tokens"});
  const TokenizerNode tokens = node.at("special_tokens");
  tokens.require_object();
  template_.emplace();
  for (const TokenizerNode& piece : node.items("single")) {
    piece.only({"SpecialToken", "Sequence"});
    if (piece.has("Sequence")) {
      const TokenizerNode sequence = piece.at("Sequence");
      sequence.only({"id", "type_id"});
      if (const std::string id = sequence.text("id"); id != "A")
        sequence.refuse(fmt::format("the template for one text names {}", quote_text(id)), "name A");
      template_->push_back(kText);
    } else {
      const TokenizerNode special = piece.at("SpecialToken");
      special.only({"id", "type_id"});
      const std::string name = special.text("id");
      if (!tokens.value().contains(name))
        special.refuse(fmt::format("{} is not in special_tokens", quote_text(name)), "add it there");
      const TokenizerNode token(tokens.value()[name], node.where(), tokens.place() + "." + quote_text(name));
      token.require_object();
      token.only({"id", "ids", "tokens"});
      for (const TokenizerNode& id : token.items("ids")) {
        if (!id.value().is_number_unsigned() || id.value().get<std::uint64_t>() >= std::uint64_t{kMostTokenIds})
          id.refuse(fmt::format("is no whole number below {}", kMostTokenIds), "use ids of the vocabulary");
        template_->push_back(id.value().get<std::int32_t>());
        end_ = std::max(end_, template_->back() + 1);
      }
    }
    if (template_->size() > kLongestTemplate)
      node.refuse(fmt::format("the template has more than {} tokens", kLongestTemplate), "use a shorter one");
  }
}

}  // namespace lockstep
