#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/utf8.h"
#include "spec/text/text_input.h"

namespace lockstep {
namespace {

constexpr std::size_t kLongestAddedToken = 512;  // the search looks at no more at each place
constexpr std::size_t kMostAddedBytes = 4 << 20;

}  // namespace

void TextTrie::build(std::vector<std::pair<std::string, int>> texts) {
  if (texts.empty()) return;
  // Of equal texts the last counts. Sorted, those below a node are neighbours.
  std::stable_sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> open = {{0, texts.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t node = 0; node < open.size(); ++node) {  // breadth first: nodes are numbered as they are found
    auto [begin, end, depth] = open[node];
    for (; begin < end && texts[begin].first.size() == depth; ++begin) nodes_[node].number = texts[begin].second;
    nodes_[node].first = static_cast<std::uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = texts[begin].first[depth];
      std::size_t next = begin;
      while (next < end && texts[next].first[depth] == byte) ++next;
      edges_.push_back({static_cast<unsigned char>(byte), static_cast<std::uint32_t>(nodes_.size())});
      nodes_.emplace_back();
      open.push_back({begin, next, depth + 1});
      begin = next;
    }
    nodes_[node].count = static_cast<std::uint32_t>(edges_.size()) - nodes_[node].first;
  }
  for (std::uint32_t i = 0; i < nodes_[0].count; ++i) starts_[edges_[i].byte] = true;
}

bool TextTrie::find(std::string_view text, std::size_t from, std::size_t& begin, std::size_t& end, int& number) const {
  for (begin = from; begin < text.size(); ++begin) {
    if (!starts_[static_cast<unsigned char>(text[begin])]) continue;
    number = -1;
    std::uint32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      const Edge* const first = edges_.data() + nodes_[node].first;
      const Edge* const last = first + nodes_[node].count;
      const auto byte = static_cast<unsigned char>(text[at]);
      const Edge* const edge =
          std::lower_bound(first, last, byte, [](const Edge& e, unsigned char b) { return e.byte < b; });
      if (edge == last || edge->byte != byte) break;
      node = edge->node;
      if (nodes_[node].number >= 0) number = nodes_[node].number, end = at + 1;
    }
    if (number >= 0) return true;
  }
  return false;
}

AddedTokens::AddedTokens(const TokenizerNode& document, const TokenTable& vocabulary, const Normalize& normalize) {
  end_ = vocabulary.end();
  if (!document.has("added_tokens")) return;
  std::size_t bytes = 0;
  std::int64_t largest = -1;  // of the ids given so far
  for (const TokenizerNode& node : document.items("added_tokens")) {
    AddedToken token;
    node.require_object();
    node.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    token.text = node.text("content");
    node.number("id", kMostTokenIds - 1);
    token.single_word = node.flag("single_word");
    token.strips_left = node.flag("lstrip");
    token.strips_right = node.flag("rstrip");
    token.normalized = node.flag("normalized");
    token.special = node.flag("special");
    if (token.text.empty()) continue;
    bytes += token.text.size();
    if (token.text.size() > kLongestAddedToken || bytes > kMostAddedBytes)
      node.refuse(fmt::format("{} is too long", quote_text(token.text)), "check that it is the file you meant");
    if (token.single_word) require_unicode(fmt::format("{}: {}: single_word", node.where(), node.place()));
    if (token.special) special_[token.text] = true;
    const auto known = by_text_.find(token.text);
    std::int64_t id = known != by_text_.end() ? tokens_[known->second].id : vocabulary.id_of(token.text);
    if (id < 0) id = largest >= vocabulary.size() ? largest + 1 : vocabulary.size();
    if (id >= kMostTokenIds) node.refuse("its id is too large", "check that it is the file you meant");
    largest = std::max(largest, id);
    token.id = static_cast<std::int32_t>(id);
    end_ = std::max(end_, token.id + 1);
    const auto [same, fresh] = by_id_.try_emplace(token.id, tokens_.size());
    by_text_[token.text] = same->second;
    if (fresh)
      tokens_.push_back(token);
    else
      tokens_[same->second] = token;
  }
  std::vector<std::pair<std::string, int>> plain, normalized;
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    std::string text = tokens_[i].normalized ? normalize(tokens_[i].text) : tokens_[i].text;
    if (!text.empty()) (tokens_[i].normalized ? normalized : plain).emplace_back(std::move(text), static_cast<int>(i));
  }
  plain_.build(std::move(plain));
  normalized_.build(std::move(normalized));
}

bool AddedTokens::settle(const AddedToken& token, std::string_view text, std::size_t done, std::size_t& begin,
                         std::size_t& end) {
  if (token.single_word) {
    if (begin > 0 && is_word_character(utf8_character(text, utf8_before(text, begin)))) return false;
    if (end < text.size() && is_word_character(utf8_character(text, end))) return false;
  }
  if (token.strips_left) {
    while (begin > done) {
      const std::size_t before = utf8_before(text, begin);
      if (!is_white_space(utf8_character(text, before))) break;
      begin = before;
    }
  }
  if (token.strips_right)
    while (end < text.size() && is_white_space(utf8_character(text, end))) end += utf8_bytes(text[end]);
  return true;
}

const AddedToken* AddedTokens::find(std::string_view text) const {
  const auto at = by_text_.find(std::string(text));
  return at == by_text_.end() ? nullptr : &tokens_[at->second];
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &tokens_[at->second];
}

bool AddedTokens::special(std::string_view text) const { return special_.contains(std::string(text)); }

}  // namespace lockstep
