"""Networks as plain modules for one network; the engine stacks them."""

from threefold.networks.calling import called, put_values
from threefold.networks.cnn import CNN, Convolutions
from threefold.networks.dropout import drawing, uniform, with_addressed_dropout
from threefold.networks.features import encoder
from threefold.networks.feedback_vae import FeedbackVAE
from threefold.networks.layers import Shift, initial_params
from threefold.networks.mlp import MLP
from threefold.networks.resnet import ResNet18
from threefold.networks.spec import (
    NETWORKS,
    AnyNetwork,
    CNNNetwork,
    MLPNetwork,
    OwnNetwork,
    find_network,
    register_network,
    written_shape,
)
from threefold.networks.structure import GateOn, Structure
from threefold.networks.vae import LATENT, VAE, ConvolutionalVAE, Decoder, EncodedVAE, Likelihood
from threefold.networks.weights import Weights

__all__ = [
    "CNN",
    "LATENT",
    "MLP",
    "NETWORKS",
    "VAE",
    "AnyNetwork",
    "CNNNetwork",
    "ConvolutionalVAE",
    "Convolutions",
    "Decoder",
    "EncodedVAE",
    "FeedbackVAE",
    "GateOn",
    "Likelihood",
    "MLPNetwork",
    "OwnNetwork",
    "ResNet18",
    "Shift",
    "Structure",
    "Weights",
    "called",
    "drawing",
    "encoder",
    "find_network",
    "initial_params",
    "put_values",
    "register_network",
    "uniform",
    "with_addressed_dropout",
    "written_shape",
]
