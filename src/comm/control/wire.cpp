#include "comm/control/wire.h"

#include "comm/error.h"

namespace lockstep::control {

FrameHeader header_of(const Frame& frame) {
  return {frame.type, frame.epoch, static_cast<std::uint32_t>(frame.payload.size())};
}

std::string FrameHeader::encode() const {
  return Writer().number(static_cast<std::uint16_t>(type)).number(epoch).number(length).take();
}

FrameHeader FrameHeader::decode(std::string_view bytes) {
  Reader reader(bytes);
  FrameHeader header;
  header.type = static_cast<FrameType>(reader.number<std::uint16_t>(1, kFrameTypes, "the type of a frame"));
  header.epoch = reader.number<std::uint32_t>();
  header.length = reader.number<std::uint32_t>(0, kMostPayload, "the length of a frame");
  reader.end();
  return header;
}

Writer& Writer::text(std::string_view value, std::size_t most) {
  value = value.substr(0, most);
  number(static_cast<std::uint32_t>(value.size()));
  text_.append(value);
  return *this;
}

std::string_view Reader::bytes(std::size_t count) {
  if (bytes_.size() < count) throw CommError("a frame ends too early");
  const std::string_view taken = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return taken;
}

std::string Reader::text(std::size_t most, const char* what) {
  const auto length = number<std::uint32_t>();
  if (length > most) out_of_range(what, length);
  return std::string(bytes(length));
}

std::string Reader::name(const char* what) {
  std::string name = text(kMostName, what);
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) out_of_range(what, c);
  return name;
}

double Reader::deadline() {
  const double seconds = static_cast<double>(number<std::uint64_t>()) / 1e6;
  if (seconds < kShortestDeadline || seconds > kLongestDeadline)
    throw CommError(fmt::format("a frame with a deadline of {} s, {} to {} are known", seconds, kShortestDeadline,
                                kLongestDeadline));
  return seconds;
}

void Reader::end() const {
  if (!bytes_.empty()) throw CommError(fmt::format("a frame has {} bytes too many", bytes_.size()));
}

void Reader::out_of_range(const char* what, std::int64_t value) {
  throw CommError(fmt::format("a frame with {} in {}", value, what));
}

std::string Join::encode() const {
  Writer writer;
  writer.number(rank).number(size).seconds(deadline).text(host, kMostName).number(process);
  return writer.take();
}

// Whether the rank is in range is for the coordinator to say in words.
Join Join::decode(std::string_view bytes) {
  Reader reader(bytes);
  Join join;
  join.rank = reader.number<int>();
  join.size = reader.number<int>();
  join.deadline = reader.deadline();
  join.host = reader.name("a host's name");
  join.process = reader.number<std::uint32_t>();
  reader.end();
  return join;
}

std::string Ask::encode() const {
  Writer writer;
  writer.number(static_cast<std::uint8_t>(kind)).number(number).seconds(deadline);
  writer.text(name, kMostName).text(value, kMostBlob);
  return writer.take();
}

Ask Ask::decode(std::string_view bytes) {
  Reader reader(bytes);
  Ask ask;
  ask.kind = static_cast<Kind>(reader.number<std::uint8_t>(0, 4, "the kind of a request"));
  ask.number = reader.number<std::uint32_t>();
  ask.deadline = reader.deadline();
  ask.name = reader.name("a name");
  ask.value = reader.text(kMostBlob, "a value");
  reader.end();
  return ask;
}

std::string Reply::encode() const {
  Writer writer;
  writer.number(number).number(static_cast<std::uint8_t>(well)).text(value, kMostBlob);
  return writer.take();
}

Reply Reply::decode(std::string_view bytes) {
  Reader reader(bytes);
  Reply reply;
  reply.number = reader.number<std::uint32_t>();
  reply.well = reader.number<std::uint8_t>(0, 1, "a reply") == 1;
  reply.value = reader.text(kMostBlob, "a value");
  reader.end();
  return reply;
}

std::string GroupSpec::encode() const {
  Writer writer;
  writer.number(id).text(key, kMostName).text(name, kMostName).number(static_cast<std::uint32_t>(members.size()));
  for (const int member : members) writer.number(member);
  return writer.take();
}

GroupSpec GroupSpec::decode(std::string_view bytes) {
  Reader reader(bytes);
  GroupSpec group;
  group.id = reader.number<std::uint32_t>();
  group.key = reader.name("a group's key");
  group.name = reader.name("a group's name");
  const auto members = reader.number<std::uint32_t>(1, kMostRanks, "a group's size");
  for (std::uint32_t i = 0; i < members; ++i)
    group.members.push_back(reader.number<int>(0, kMostRanks - 1, "a group's member"));
  reader.end();
  return group;
}

void Record::encode(Writer& writer) const {
  const auto byte = [&](auto value) { writer.number(static_cast<std::uint8_t>(value)); };
  writer.number(group).number(sequence);
  byte(op), byte(dtype), byte(reduction), byte(algorithm), byte(done);
  writer.number(peer).number(count).number(static_cast<std::uint32_t>(counts.size()));
  for (const std::int64_t n : counts) writer.number(n);
}

Record Record::decode(Reader& reader) {
  const auto byte = [&](int values, const char* what) {
    return reader.number<std::uint8_t>(0, static_cast<std::uint8_t>(values - 1), what);
  };
  Record record;
  record.group = reader.number<std::uint32_t>();
  record.sequence = reader.number<std::uint64_t>();
  record.op = static_cast<CommOp>(byte(kCommOps, "an operation"));
  record.dtype = static_cast<DType>(byte(static_cast<int>(DType::i64) + 1, "a type"));
  record.reduction = static_cast<Reduction>(byte(static_cast<int>(Reduction::max) + 1, "a reduction"));
  record.algorithm = static_cast<Algorithm>(byte(static_cast<int>(Algorithm::native) + 1, "an algorithm"));
  record.done = byte(2, "a record's state") == 1;
  record.peer = reader.number<int>(0, kMostRanks - 1, "a root or peer");
  record.count = reader.number<std::int64_t>(0, kMostElements, "a count");
  const auto counts = reader.number<std::uint32_t>(0, kMostRanks, "how many counts there are");
  std::int64_t sum = 0;
  for (std::uint32_t i = 0; i < counts; ++i) {
    record.counts.push_back(reader.number<std::int64_t>(0, kMostElements, "a count"));
    sum += record.counts.back();  // 4096 of 2^56 still fit, with nothing to spare
    if (sum > kMostElements) throw CommError("a frame with counts of too many elements");
  }
  return record;
}

std::vector<Record> decode_records(std::string_view bytes) {
  Reader reader(bytes);
  std::vector<Record> records;
  while (!reader.empty()) records.push_back(Record::decode(reader));
  return records;
}

Message message_of(const Record& record, int ranks) {
  Message message{.op = record.op,
                  .reduction = record.reduction,
                  .algorithm = record.algorithm,
                  .peer = record.peer,
                  .counts = record.counts};
  if (record.op == CommOp::barrier) return message;
  const bool shares = (record.op == CommOp::gather || record.op == CommOp::scatter) && record.counts.empty();
  const Tensor x(nullptr, record.dtype, Device::meta, {shares ? record.count / ranks : record.count});
  message.in = x;
  message.out = x;
  return message;
}

std::string encode_failure(const CommFailure& failure) {
  Writer writer;
  writer.number(static_cast<std::uint8_t>(failure.secondary)).text(failure.what, kMostWords);
  return writer.take();
}

CommFailure decode_failure(std::string_view bytes) {
  Reader reader(bytes);
  CommFailure failure;
  failure.secondary = reader.number<std::uint8_t>(0, 1, "a failure") == 1;
  failure.what = reader.text(kMostWords, "the words of a failure");
  reader.end();
  return failure;
}

std::string Welcome::encode() const {
  Writer writer;
  writer.number(host_rank).text(who, kMostName * 2);
  return writer.take();
}

Welcome Welcome::decode(std::string_view bytes) {
  Reader reader(bytes);
  Welcome welcome;
  welcome.host_rank = reader.number<int>(-1, kMostRanks - 1, "the coordinator's rank");
  welcome.who = reader.text(kMostName * 2, "the coordinator's place");
  reader.end();
  return welcome;
}

}  // namespace lockstep::control
