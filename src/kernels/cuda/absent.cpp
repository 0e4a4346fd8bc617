// Where there is no CUDA toolkit: no cuda stream can be made, so none of these can be called.
#include "kernels/attention.h"
#include "kernels/attention_merge.h"
#include "kernels/bias.h"
#include "kernels/block_codes.h"
#include "kernels/block_hash.h"
#include "kernels/cross_entropy.h"
#include "kernels/cuda/attention/cudnn_attention.h"
#include "kernels/cuda/attention/hopper_attention.h"
#include "kernels/cuda/ceilings.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/heads.h"
#include "kernels/host_store.h"
#include "kernels/layernorm.h"
#include "kernels/mask.h"
#include "kernels/matmul.h"
#include "kernels/norm_sum.h"
#include "kernels/optimizers.h"
#include "kernels/product_tuning.h"
#include "kernels/quantize.h"
#include "kernels/random.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/row_codes.h"
#include "kernels/split_cross_entropy.h"
#include "kernels/step_control.h"
#include "kernels/swiglu.h"
#include "kernels/table_rows.h"
#include "kernels/top_k.h"
#include "kernels/tree_sum.h"

namespace lockstep::cuda {

namespace {
[[noreturn]] void absent() {
  throw EnvironmentError("this program was built without CUDA; build it where the toolkit is");
}
}  // namespace

void attention_forward(const AttentionForwardArgs&, lockstep::Stream&) { absent(); }
void attention_backward(const AttentionBackwardArgs&, lockstep::Stream&) { absent(); }
void attention_merge(const AttentionMergeArgs&, lockstep::Stream&) { absent(); }
std::string cudnn_attention_forward(const AttentionForwardArgs&, lockstep::Stream&) { absent(); }
std::string cudnn_attention_backward(const AttentionBackwardArgs&, lockstep::Stream&, std::int64_t) { absent(); }
std::string hopper_attention_forward(const AttentionForwardArgs&, lockstep::Stream&) { absent(); }
std::string hopper_attention_backward(const AttentionBackwardArgs&, lockstep::Stream&) { absent(); }
void block_hash(const BlockHashArgs&, lockstep::Stream&) { absent(); }
void bias_backward(const BiasBackwardArgs&, lockstep::Stream&) { absent(); }
void cross_entropy(const CrossEntropyArgs&, lockstep::Stream&) { absent(); }
void add(const AddArgs&, lockstep::Stream&) { absent(); }
void cast(const CastArgs&, lockstep::Stream&) { absent(); }
void scale(const ScaleArgs&, lockstep::Stream&) { absent(); }
void fill(const FillArgs&, lockstep::Stream&) { absent(); }
void embedding_forward(const EmbeddingForwardArgs&, lockstep::Stream&) { absent(); }
void embedding_backward(const EmbeddingBackwardArgs&, lockstep::Stream&) { absent(); }
void gelu_forward(const GeluForwardArgs&, lockstep::Stream&) { absent(); }
void gelu_backward(const GeluBackwardArgs&, lockstep::Stream&) { absent(); }
void copy_heads(const CopyHeadsArgs&, lockstep::Stream&) { absent(); }
void host_store(const HostStoreArgs&, lockstep::Stream&) { absent(); }
void layernorm_forward(const LayerNormForwardArgs&, lockstep::Stream&) { absent(); }
void layernorm_backward_input(const LayerNormBackwardInputArgs&, lockstep::Stream&) { absent(); }
void layernorm_backward_weight(const LayerNormBackwardWeightArgs&, lockstep::Stream&) { absent(); }
void matmul(const MatmulArgs&, lockstep::Stream&) { absent(); }
ProductSite product_site(lockstep::Stream&) { absent(); }
void set_product_choices(const ProductChoices&, bool, lockstep::Stream&) { absent(); }
ProductChoices product_choices(lockstep::Stream&) { absent(); }
bool new_product_choices(lockstep::Stream&) { absent(); }
double copy_bandwidth(Memory&, lockstep::Stream&) { absent(); }
void norm_sum(const NormSumArgs&, lockstep::Stream&) { absent(); }
void adamw(const AdamWArgs&, lockstep::Stream&) { absent(); }
void sgd(const SgdArgs&, lockstep::Stream&) { absent(); }
void init_normal(const InitNormalArgs&, lockstep::Stream&) { absent(); }
void dropout(const DropoutArgs&, lockstep::Stream&) { absent(); }
void amax(const AmaxArgs&, lockstep::Stream&) { absent(); }
void quantize(const QuantizeArgs&, lockstep::Stream&) { absent(); }
void rmsnorm_forward(const RmsNormForwardArgs&, lockstep::Stream&) { absent(); }
void rmsnorm_backward_input(const RmsNormBackwardInputArgs&, lockstep::Stream&) { absent(); }
void rmsnorm_backward_weight(const RmsNormBackwardWeightArgs&, lockstep::Stream&) { absent(); }
void rope_table(const RopeTableArgs&, lockstep::Stream&) { absent(); }
void rope(const RopeArgs&, lockstep::Stream&) { absent(); }
void split_cross_entropy_statistics(const SplitCrossEntropyStatisticsArgs&, lockstep::Stream&) { absent(); }
void split_cross_entropy(const SplitCrossEntropyArgs&, lockstep::Stream&) { absent(); }
void step_control(const StepControlArgs&, lockstep::Stream&) { absent(); }
void scale_loss(const ScaleLossArgs&, lockstep::Stream&) { absent(); }
void swiglu_forward(const SwigluForwardArgs&, lockstep::Stream&) { absent(); }
void swiglu_backward(const SwigluBackwardArgs&, lockstep::Stream&) { absent(); }
void swiglu_backward_fp8(const SwigluBackwardFp8Args&, lockstep::Stream&) { absent(); }
void tree_sum(const TreeSumArgs&, lockstep::Stream&) { absent(); }
void encode_blocks(const EncodeBlocksArgs&, lockstep::Stream&) { absent(); }
void decode_blocks(const DecodeBlocksArgs&, lockstep::Stream&) { absent(); }
void encode_rows(const EncodeRowsArgs&, lockstep::Stream&) { absent(); }
void decode_rows(const DecodeRowsArgs&, lockstep::Stream&) { absent(); }
void select_top(const SelectTopArgs&, lockstep::Stream&) { absent(); }
void add_at(const AddAtArgs&, lockstep::Stream&) { absent(); }
void pack(const PackArgs&, lockstep::Stream&) { absent(); }
void unpack(const UnpackArgs&, lockstep::Stream&) { absent(); }
void keep(const KeepArgs&, lockstep::Stream&) { absent(); }
void gather_rows(const GatherRowsArgs&, lockstep::Stream&) { absent(); }
void scatter_rows(const ScatterRowsArgs&, lockstep::Stream&) { absent(); }

}  // namespace lockstep::cuda
