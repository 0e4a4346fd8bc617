#include "train/continuation.h"

#include <algorithm>

namespace lockstep {

namespace {

// A text that is continued: picks its tokens until it is finished.
class Answering {
 public:
  Answering(const Generator& generator, int text, const Continuation& how)
      : generator_(&generator), how_(&how), text_(text) {}

  // Picks and gives a token; why the text is finished, or nothing where token() is to be read next.
  template <class Give>
  std::optional<Finish> take(std::span<const double> logits, std::vector<Candidate>& room, Give&& give) {
    std::vector<double> penalized;
    if (how_->sampling.repetition != 1) {
      penalized.assign(logits.begin(), logits.end());
      penalize(penalized, generator_->tokens(text_), how_->sampling.repetition);
      logits = penalized;
    }
    token_ = pick(logits, how_->sampling, generator_->length(text_), room);
    if (std::ranges::find(how_->ends, token_) != how_->ends.end()) return Finish::end_of_text;
    if (!give(token_)) return Finish::stopped;
    if (++given_ >= how_->max_tokens) return Finish::enough;
    if (generator_->length(text_) == generator_->positions()) return Finish::no_positions;
    return std::nullopt;
  }
  int text() const { return text_; }
  std::int32_t token() const { return token_; }

 private:
  const Generator* generator_;
  const Continuation* how_;
  int text_;
  std::int32_t token_ = 0;
  std::int64_t given_ = 0;
};

}  // namespace

Finish continue_prompt(Generator& generator, std::span<const std::int32_t> prompt, const Continuation& how,
                       const std::function<bool(std::int32_t)>& give) {
  const std::span<const std::int32_t> read = generator.tokens();
  if (read.size() >= prompt.size() || !std::equal(read.begin(), read.end(), prompt.begin())) generator.clear();
  std::vector<Candidate> room;
  Answering answer(generator, 0, how);
  std::span<const double> logits = generator.feed(prompt.subspan(generator.tokens().size()));
  for (;;) {
    if (const auto why = answer.take(logits, room, give)) return *why;
    const std::int32_t token = answer.token();
    logits = generator.feed({&token, 1});
  }
}

void continue_prompts(Generator& generator, const Continuation& how, const ManyPrompts& prompts) {
  struct Running {
    Answering answer;
    std::int64_t number;
    std::vector<std::int32_t> rest;  // of its prompt, to be read, the last token first
  };
  std::vector<Running> running;
  std::vector<int> free;
  for (int text = generator.texts(); text-- > 0;) free.push_back(text);
  std::vector<Candidate> room;
  std::int64_t count = 0;
  // Whether there is more to read of it.
  const auto take = [&](Running& r, std::span<const double> logits) {
    if (!r.rest.empty()) r.rest.pop_back();
    if (!r.rest.empty()) return true;
    const auto why = r.answer.take(logits, room, [&](std::int32_t token) { return prompts.give(r.number, token); });
    if (!why) return true;
    free.push_back(r.answer.text());
    prompts.finished(r.number, *why);
    return false;
  };
  for (bool more = true;;) {
    while (more && !free.empty()) {
      const auto prompt = prompts.next();
      more = prompt.has_value();
      if (!more) break;
      const int text = free.back();
      free.pop_back();
      generator.clear(text);
      const auto read = static_cast<std::ptrdiff_t>(generator.read_runs(*prompt, text));
      running.push_back({Answering(generator, text, how), count++, {prompt->rbegin(), prompt->rend() - read}});
    }
    if (running.empty()) return;
    std::vector<Generator::NextToken> next;
    for (const Running& r : running)
      next.push_back({r.answer.text(), r.rest.empty() ? r.answer.token() : r.rest.back()});
    const std::span<const double> logits = generator.feed_each(next);
    const auto V = static_cast<std::size_t>(generator.spec().vocabulary);
    std::vector<Running> still;
    for (std::size_t i = 0; i < running.size(); ++i)
      if (take(running[i], logits.subspan(i * V, V))) still.push_back(std::move(running[i]));
    running = std::move(still);
  }
}

}  // namespace lockstep
