#include "comm/control/handshake.h"

#include "comm/error.h"

namespace lockstep::control {

namespace {

constexpr std::string_view kGreetingMagic = "LSCT";

std::string greeting_start() {
  std::string bytes(kGreetingMagic);
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(kProtocol >> shift);
  return bytes;
}

// Fields have fixed lengths after a purpose that ends, so that no two purposes hash the same bytes.
Secret keyed(const Token& token, std::string_view purpose, std::initializer_list<std::string_view> fields) {
  std::string text = fmt::format("lockstep control {} {}", kProtocol, purpose);
  text += '\0';
  for (const std::string_view field : fields) text.append(field);
  return hash_of(text, token.key());
}

struct Exchange {
  std::string_view nonce, ranks, coordinators;  // the public keys
};

std::string ranks_proof(const Token& token, const Exchange& e) {
  return std::string(keyed(token, "rank", {e.nonce, e.ranks}).view());
}

std::string coordinators_proof(const Token& token, const Exchange& e) {
  return std::string(keyed(token, "coordinator", {e.nonce, e.ranks, e.coordinators}).view());
}

Secret key_for(const Token& token, std::string_view direction, const Secret& agreed, const Exchange& e) {
  return keyed(token, direction, {agreed.view(), e.nonce, e.ranks, e.coordinators});
}
constexpr std::string_view kToRank = "to the rank", kToCoordinator = "to the coordinator";

}  // namespace

Token::Token(std::string_view text) : key_(hash_of(text)) {
  if (text.size() < 16)
    throw UserError(ExitCode::usage, fmt::format("a token of {} characters can be guessed", text.size()),
                    "give all ranks the same one of at least 16");
}

std::string Token::make() {
  std::string text;
  for (const char c : random_bytes(32)) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

std::string refusal() { return std::string(kVerdictBytes, '\0'); }

std::string CoordinatorHandshake::greeting() const { return greeting_start() + nonce_; }

std::optional<CoordinatorHandshake::Verdict> CoordinatorHandshake::verdict(std::string_view answer) const {
  if (answer.size() != kAnswerBytes) return std::nullopt;
  Exchange exchange{.nonce = nonce_, .ranks = answer.substr(0, kPublicBytes), .coordinators = {}};
  if (!equal_in_constant_time(answer.substr(kPublicBytes), ranks_proof(*token_, exchange))) return std::nullopt;
  const KeyPair mine = KeyPair::make();
  const std::optional<Secret> agreed = agree_on(mine, exchange.ranks);
  if (!agreed) return std::nullopt;
  exchange.coordinators = mine.shown;
  return Verdict{mine.shown + coordinators_proof(*token_, exchange),
                 {.sending = key_for(*token_, kToRank, *agreed, exchange),
                  .receiving = key_for(*token_, kToCoordinator, *agreed, exchange)}};
}

void RankHandshake::check_start(std::string_view start) {
  if (!start.starts_with(kGreetingMagic)) throw CommError("what listens there is no coordinator of ranks");
  if (start.substr(0, kGreetingStart) != greeting_start())
    throw CommError("the coordinator there is of another version; start all ranks with the same program");
}

std::string RankHandshake::answer(std::string_view greeting) {
  check_start(greeting);
  LOCKSTEP_CHECK(greeting.size() == kGreetingBytes, "a greeting of {} bytes", greeting.size());
  nonce_ = greeting.substr(kGreetingStart);
  mine_ = KeyPair::make();
  return mine_.shown + ranks_proof(*token_, {nonce_, mine_.shown, {}});
}

SessionKeys RankHandshake::keys(std::string_view verdict) const {
  if (equal_in_constant_time(verdict, refusal()))
    throw CommError("the coordinator refuses this rank's token; give all ranks the same one");
  const Exchange exchange{nonce_, mine_.shown, verdict.substr(0, kPublicBytes)};
  const bool proved = verdict.size() == kVerdictBytes &&
                      equal_in_constant_time(verdict.substr(kPublicBytes), coordinators_proof(*token_, exchange));
  const std::optional<Secret> agreed = proved ? agree_on(mine_, exchange.coordinators) : std::nullopt;
  if (!agreed) throw CommError("the coordinator there does not know the token; give all ranks the same one");
  return {.sending = key_for(*token_, kToCoordinator, *agreed, exchange),
          .receiving = key_for(*token_, kToRank, *agreed, exchange)};
}

}  // namespace lockstep::control
